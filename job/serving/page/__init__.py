"""The page for people at `/`, and `/docs`: files of the package, with the libraries in `site/vendor/`."""
