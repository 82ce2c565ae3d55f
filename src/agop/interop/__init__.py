"""agop with other libraries: one module a library, which is imported only when its module here is."""
