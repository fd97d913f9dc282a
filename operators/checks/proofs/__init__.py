"""Proofs of claims for all real numbers, by z3 (the extra `proofs`); never in a worker."""
