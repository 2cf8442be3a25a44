"""What sensors measure: `sensor` has a function for each type, `objects` the frames that they refer to, `ray` what
rangefinders see.
"""
