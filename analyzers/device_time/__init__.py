"""Where the device time went: intervals, ledger, bubbles and their causes."""
