"""agop with other libraries, one module per library. `import agop` imports none of them."""
