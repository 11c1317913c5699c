"""Who shall lead a group: the decision, for an operator or for a supervisor on one host."""
