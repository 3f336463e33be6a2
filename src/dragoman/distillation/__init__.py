"""Distillation: from a teacher to a small student, and the ledger of the quality that is lost on the way."""
