"""Does the run still make progress?"""
