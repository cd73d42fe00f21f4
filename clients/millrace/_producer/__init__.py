"""What a producer is made of: records become batches, batches are sent, acks become receipts."""
