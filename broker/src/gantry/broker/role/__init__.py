"""The role of a group's member: master or slave, how it is chosen at a start, and its promises."""
