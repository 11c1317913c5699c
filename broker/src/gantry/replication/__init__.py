"""A group of one master and its slaves: who has which part of the log, and who may say that it is confirmed."""
