"""The parts of producers: choice of a queue, attempts, and the checks of transactions."""
