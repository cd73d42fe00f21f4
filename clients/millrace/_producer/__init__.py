"""The parts of a producer: accumulator, queue of batches, sender, receipts."""
