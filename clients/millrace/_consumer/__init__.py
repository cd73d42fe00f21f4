"""What a consumer is made of: positions, fetches, and the membership of a group carried out."""
