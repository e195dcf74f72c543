"""The views of tidelog's own stores: a module per view plans its parts and reads them."""
