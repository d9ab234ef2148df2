"""Response lengths, their variance, and what their tail costs."""
