"""The commands: flags, help texts and output. Each imports its needs when it runs."""
