"""The MCP facade."""
