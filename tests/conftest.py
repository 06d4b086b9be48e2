import signal

# A shell starts what runs in its background with interrupts ignored, and children inherit that.
# Tests interrupt children on purpose, so they must start as from a terminal.
signal.signal(signal.SIGINT, signal.default_int_handler)
