"""What a member of a group is: master or slave, which of them in this life, and what it has promised."""
