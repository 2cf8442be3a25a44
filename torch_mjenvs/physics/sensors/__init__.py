"""Sensors: `sensor` has a function for each type, `objects` the frames that these refer to, `ray` the distances that
rangefinders measure. `recorded` keeps what delayed ones give later.
"""
