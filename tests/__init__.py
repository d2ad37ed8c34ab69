"""What the tool does, held in one sentence a test."""
