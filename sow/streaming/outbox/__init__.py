"""What waits for one session: entries, their queue, and how they are conflated."""
