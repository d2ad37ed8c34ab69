"""What every room uses: errors, files, versions, options as fields, redaction."""
