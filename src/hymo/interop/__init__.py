"""HyMo models outside of HyMo: export to the Hugging Face format, and import from it."""
