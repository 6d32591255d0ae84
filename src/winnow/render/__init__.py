"""Figures and pages, drawn and filled."""
