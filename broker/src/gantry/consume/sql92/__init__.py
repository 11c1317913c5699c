"""SQL92 expressions on message properties: text to tokens, tokens to a tree, the tree to a program."""
