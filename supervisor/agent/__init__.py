"""The agent endpoint's parts: connections, identity, configuration, sessions, turns, uploads, logs.

`supervisor.agent_endpoint` puts them together; nothing outside imports from here but that module,
the daemon and the command line.

Failure: none of its own.
"""
