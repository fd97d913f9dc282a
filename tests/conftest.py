"""What all tests share."""

from hypothesis import settings

# Kernels are compiled at their first call, so the time of one example says nothing; a failure prints how to repeat it.
settings.register_profile("freshet", deadline=None, print_blob=True)
settings.load_profile("freshet")
