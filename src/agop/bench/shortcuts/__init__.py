"""`agop bench shortcuts`: is a planted shortcut found, and is there an alarm without one?"""
