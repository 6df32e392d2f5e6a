"""Tests mirror the sources; agreement/ holds those against something independent."""
