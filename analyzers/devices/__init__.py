"""What the devices did, joined with what the records say was asked of them."""
