"""Object stores: the fake one, real servers, and what logfs does with them."""
