"""What the portal is made with: facts, references, lab data, staging and checks. `python -m docs.tools --help`."""
