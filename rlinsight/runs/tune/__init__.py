"""The tuning loop: a pure decision, the effects that carry it out, and the log between them."""
