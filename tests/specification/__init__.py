"""The parts of the specification that need a broker: captured examples, limits, settings.

python -m tests.specification record             record the examples from a broker
python -m tests.specification update             bring the broker's tables up to date
python -m tests.specification update --check     exit 1 if an update would change the document
"""
