"""An OpenAI-compatible completions server over the scheduler, and its playground page."""
