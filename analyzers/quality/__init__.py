"""Does the run still learn?"""
