"""Your own hosts as a testbed: the file that names them, our program on each by ssh, and the path between them."""
