"""Classification tasks with a planted shortcut: something beside the object that goes with a class."""
