"""The stages of scripts/gpu_check.py: does all of it run on this card, and how fast is it there?"""
