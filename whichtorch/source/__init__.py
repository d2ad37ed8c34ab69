"""Python source is read: what stands where in a tree, and who binds and reads which name."""
