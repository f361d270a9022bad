"""What the portal is made with: generated parts, values in pages, staging and checks of the built site."""
