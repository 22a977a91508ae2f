"""Traffic of every feature on several SDKs: recorded once, with the truth about each call."""
