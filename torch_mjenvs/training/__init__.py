"""The algorithms of `torch_mjenvs train`, PPO (in torch and compiled) and SAC, and what all runs share. Needs the extra
`train`.
"""
