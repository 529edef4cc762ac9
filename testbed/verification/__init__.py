"""The certificate: the exactness of the edits, checked by machine."""
