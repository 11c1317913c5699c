"""Agreement between a message and the business effect that it stands for, kept in the user's own database."""
