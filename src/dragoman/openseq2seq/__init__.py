"""Conversion of OpenSeq2Seq configurations to recipes."""
