"""What a contact costs: pyramids of friction (`pyramid`, and `spring_pyramid` where their rows are softened), and
elliptic cones (`elliptic`).
"""
